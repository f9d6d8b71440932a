// Sets the theme before anything is drawn: what was chosen here before, else what the system says.
"use strict";
(function () {
  let chosen = null;
  try { chosen = localStorage.getItem("quire-theme"); } catch (e) { /* no storage: the system's */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
