package main

type pullCmd struct {
	Name string `arg:"" optional:"" help:"A listed name; without one the list is printed."`
}
