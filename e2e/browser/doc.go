// Package browser looks at the console in headless Chromium. It is a module of its own, so that the driver is no dependency of
// Quire. It skips, saying so, where no Chromium is, unless QUIRE_TEST_CHROMIUM=required.
package browser
