package model

// Picker chooses tokens for one sequence (sampling, penalties, stops, text).
type Picker struct{}
