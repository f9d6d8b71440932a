package main

// generate512 writes the kernels of the AVX-512 variants.
func generate512() {
	floats, brain := &asm{}, &asm{}
	for _, t := range tiles {
		floatTile512(floats, "floatTile", "F32", t)
		floatTile512(floats, "halfTile", "F16", t)
		floatTile512(floats, "brainTile", "BF16", t)
		brainTile512(brain, t)
	}
	chooser(floats, "floatTile", "floatArgs", tiles)
	chooser(floats, "halfTile", "floatArgs", tiles)
	chooser(floats, "brainTile", "floatArgs", tiles)
	chooser(brain, "brainDot", "floatArgs", tiles)
	floats.write("avx512_float", "Products of panels of 16 outputs with F32 activations.")
	brain.write("avx512_brain", "Products of panels of 16 outputs of BF16 with BF16 activations.")
	for _, s := range blockShapes {
		ints := &asm{}
		for _, t := range int8Tiles {
			vnniTile(ints, s, t)
		}
		chooser(ints, s.name+"VNNI", "int8Args", int8Tiles)
		ints.write("avx512_"+s.name+"_vnni", "Products of panels of 16 outputs of "+s.typ+" with int8 activations.")
	}
	rows := &asm{}
	rowKernels512(rows)
	rows.write("avx512_rows", "Kernels along one row, with vectors of 16.")
}
