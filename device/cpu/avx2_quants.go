//go:build amd64

package cpu

import (
	"unsafe"

	"quire/device"
)

// quantTile computes 1, 2 or 4 rows of a type of kquant.go.
func quantTile(t device.Type, a *int8Args, rows int) {
	switch t {
	case device.Q5_0:
		q50Tile(a, rows)
	case device.Q5_1:
		q51Tile(a, rows)
	case device.Q4_K:
		q4KTile(a, rows)
	case device.Q5_K:
		q5KTile(a, rows)
	case device.Q6_K:
		q6KTile(a, rows)
	}
}

// q50Tile computes 1, 2 or 4 rows of Q5_0.
func q50Tile(a *int8Args, rows int) {
	switch rows {
	case 4:
		q50Tile4(a)
	case 2:
		q50Tile2(a)
	default:
		q50Tile1(a)
	}
}

// q51Tile computes 1, 2 or 4 rows of Q5_1.
func q51Tile(a *int8Args, rows int) {
	switch rows {
	case 4:
		q51Tile4(a)
	case 2:
		q51Tile2(a)
	default:
		q51Tile1(a)
	}
}

// q4KTile computes 1, 2 or 4 rows of Q4_K.
func q4KTile(a *int8Args, rows int) {
	switch rows {
	case 4:
		q4KTile4(a)
	case 2:
		q4KTile2(a)
	default:
		q4KTile1(a)
	}
}

// q5KTile computes 1, 2 or 4 rows of Q5_K.
func q5KTile(a *int8Args, rows int) {
	switch rows {
	case 4:
		q5KTile4(a)
	case 2:
		q5KTile2(a)
	default:
		q5KTile1(a)
	}
}

// q6KTile computes 1, 2 or 4 rows of Q6_K.
func q6KTile(a *int8Args, rows int) {
	switch rows {
	case 4:
		q6KTile4(a)
	case 2:
		q6KTile2(a)
	default:
		q6KTile1(a)
	}
}

// dequantQuant widens runs of 32 columns of a panel of a type of kquant.go.
func dequantQuant(t device.Type, dst *float32, src unsafe.Pointer, runs int) {
	switch t {
	case device.Q5_0:
		dequantQ50(dst, src, runs)
	case device.Q5_1:
		dequantQ51(dst, src, runs)
	case device.Q4_K:
		dequantQ4K(dst, src, runs)
	case device.Q5_K:
		dequantQ5K(dst, src, runs)
	case device.Q6_K:
		dequantQ6K(dst, src, runs)
	}
}

// quantVNNI computes a tile of a type of kquant.go.
func quantVNNI(t device.Type, a *int8Args, rows, panels int) {
	switch t {
	case device.Q5_0:
		q50VNNI(a, rows, panels)
	case device.Q5_1:
		q51VNNI(a, rows, panels)
	case device.Q4_K:
		q4KVNNI(a, rows, panels)
	case device.Q5_K:
		q5KVNNI(a, rows, panels)
	case device.Q6_K:
		q6KVNNI(a, rows, panels)
	}
}
