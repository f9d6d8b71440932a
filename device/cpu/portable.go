package cpu

import (
	"math"
	"unsafe"

	"quire/device"
)

// portable is plain Go, with every product rounded before it is added, so that its bits are the same on every processor.
var portable = &kernels{
	name:      "portable",
	group:     1,
	floatRows: floatRowsGo,
	int8Rows:  int8RowsGo,
	dequant:   dequantGo,
	quantise:  quantiseGo,
	norm:      normGo,
	swiGLU:    swiGLUGo,
	softmax:   softmaxGo,
	turn:      turnGo,
	times:     timesGo,
	toHalf:    toHalfGo,
	widen:     widenGo,

	widenBlocks: widenBlocksGo,
	widenKeys:   widenKeysGo,
}

// at reads the i-th T at p.
func at[T any](p unsafe.Pointer, i int) T {
	var t T
	return *(*T)(unsafe.Add(p, i*int(unsafe.Sizeof(t))))
}

func floatRowsGo(a floatArgs, rows int) {
	for p := range a.panels {
		for r := range rows {
			var acc [panelRows]float32
			w, row := unsafe.Add(a.w, p*a.panelStride), unsafe.Add(a.x, r*a.xStride)
			for k := range a.depth {
				x := at[float32](row, k)
				v := (*[panelRows]float32)(unsafe.Add(w, k*a.wStride))
				for lane := range acc {
					acc[lane] += float32(v[lane] * x)
				}
			}
			store(unsafe.Add(a.out, r*a.outStride+p*panelRows*4), &acc, a.add)
		}
	}
}

func store(out unsafe.Pointer, acc *[panelRows]float32, add bool) {
	o := (*[panelRows]float32)(out)
	if !add {
		*o = *acc
		return
	}
	for i := range o {
		o[i] += acc[i]
	}
}

func int8RowsGo(t device.Type, a int8Args, rows int) {
	f := formatOf(t)
	blocks := a.blocks * 32 / f.cols
	for p := range a.panels {
		for r := range rows {
			out := (*[panelRows]float32)(unsafe.Add(a.out, r*a.outStride+p*panelRows*4))
			before := *out
			*out = [panelRows]float32{} // sums grow where they go: f.product would move a variable to the heap
			for b := range blocks {
				f.product(out, unsafe.Add(a.w, (p*blocks+b)*f.bytes), unsafe.Add(a.x, r*a.xStride+b*actBytes(f.cols)))
			}
			if a.add {
				for i := range out {
					out[i] += before[i]
				}
			}
		}
	}
}

// tailOf is what follows the integers of a block of activations.
func tailOf(x unsafe.Pointer) *actTail { return (*actTail)(unsafe.Add(x, 32)) }

// blockQ8 adds one block: scale(w) * scale(x) * sum of 32 integer products.
func blockQ8(acc *[panelRows]float32, w, x unsafe.Pointer) {
	scale := tailOf(x).scale
	var sum [panelRows]int32
	q := (*[8][4]int8)(x)
	for g, lanes := range (*[8][panelRows][4]int8)(unsafe.Add(w, 32)) {
		x0, x1, x2, x3 := int32(q[g][0]), int32(q[g][1]), int32(q[g][2]), int32(q[g][3])
		for lane := range lanes {
			c := &lanes[lane]
			sum[lane] += int32(c[0])*x0 + int32(c[1])*x1 + int32(c[2])*x2 + int32(c[3])*x3
		}
	}
	for lane, s := range sum {
		acc[lane] += float32(float32(s) * float32(device.FromF16(at[uint16](w, lane))*scale))
	}
}

func blockQ40(acc *[panelRows]float32, w, x unsafe.Pointer) { blockQ4(acc, w, x, 32) }
func blockQ41(acc *[panelRows]float32, w, x unsafe.Pointer) { blockQ4(acc, w, x, 64) }

// blockQ4 adds one block of nibbles; head 32 is Q4_0 (less 8), 64 is Q4_1 (plus minimum).
func blockQ4(acc *[panelRows]float32, w, x unsafe.Pointer, head int) {
	tail, less8 := tailOf(x), int32(0)
	if head == 32 {
		less8 = tail.less8
	}
	var sum [panelRows]int32
	q := (*[8][4]int8)(x)
	for g, lanes := range (*[4][panelRows][4]byte)(unsafe.Add(w, head)) {
		low, high := &q[g], &q[g+4]
		for lane := range lanes {
			s := sum[lane]
			for b, v := range lanes[lane] {
				s += int32(v&15)*int32(low[b]) + int32(v>>4)*int32(high[b])
			}
			sum[lane] = s
		}
	}
	for lane, s := range sum {
		acc[lane] += float32(float32(s+less8) * float32(device.FromF16(at[uint16](w, lane))*tail.scale))
		if head == 64 {
			acc[lane] += float32(device.FromF16(at[uint16](w, 16+lane)) * tail.sum)
		}
	}
}

func dequantGo(t device.Type, dst []float32, src unsafe.Pointer) {
	switch t {
	case device.F16:
		for i := range dst {
			dst[i] = device.FromF16(at[uint16](src, i))
		}
		return
	case device.BF16:
		for i := range dst {
			dst[i] = device.FromBF16(at[uint16](src, brainAt(i/panelRows, i%panelRows)))
		}
		return
	}
	depth := len(dst) / panelRows
	row := make([]float32, depth)
	for lane := range panelRows {
		unpackLane(t, row, unsafe.Slice((*byte)(src), panelBytes(t, depth)), lane)
		for k, v := range row {
			dst[k*panelRows+lane] = v
		}
	}
}

func quantiseGo(dst, src unsafe.Pointer, blocks int) {
	for b := range blocks {
		x := (*[32]float32)(unsafe.Add(src, b*128))
		d := unsafe.Add(dst, b*actBlock)
		q := (*[32]int8)(d)
		var top float32
		for _, v := range x {
			top = max(top, float32(math.Abs(float64(v))))
		}
		scale, inv := top/127, float32(0)
		if top > 0 {
			inv = 127 / top
		}
		var half [2]int32
		for i, v := range x {
			q[i] = int8(math.RoundToEven(float64(float32(v * inv))))
			half[i/16] += int32(q[i])
		}
		sum := half[0] + half[1]
		*tailOf(d) = actTail{
			scale: scale, less8: -8 * sum, sum: float32(scale * float32(sum)), less128: -128 * sum, half: half, less32: [2]int32{-32 * half[0], -32 * half[1]},
		}
	}
}

// fold sums 8 lanes.
func fold(l *[8]float32) float32 {
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

func normGo(dst, x, w []float32, a normArgs) {
	var lanes [8]float32
	for i, v := range x {
		lanes[i%8] += float32(v * v)
	}
	scale := rootScale(fold(&lanes), a)
	for i, v := range x {
		dst[i] = float32(v*scale) * w[i]
	}
}

// rootScale is 1/sqrt(sum/n + eps).
func rootScale(sum float32, a normArgs) float32 {
	return float32(1 / math.Sqrt(float64(sum/float32(a.n)+a.eps)))
}

func swiGLUGo(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = g / (1 + expGo(-g)) * up[i]
	}
}

func softmaxGo(s *[tileRows]float32, n int, st *softState, out []float32) {
	top := st.max
	for _, v := range s[:n] {
		top = max(top, v)
	}
	var lanes [8]float32
	for i := range s {
		if i >= n {
			s[i] = 0
			continue
		}
		s[i] = expGo(s[i] - top)
		lanes[i%8] += s[i]
	}
	alpha := expGo(st.max - top)
	st.max, st.sum = top, float32(st.sum*alpha)+fold(&lanes)
	for i := range out {
		out[i] *= alpha
	}
}

func turnGo(x, sin, cos []float32, interleaved bool) {
	if interleaved {
		for i, s := range sin {
			a, b := x[2*i], x[2*i+1]
			x[2*i], x[2*i+1] = float32(a*cos[i])-float32(b*s), float32(a*s)+float32(b*cos[i])
		}
		return
	}
	lo, hi := x[:len(sin)], x[len(sin):]
	for i, s := range sin {
		a, b := lo[i], hi[i]
		lo[i], hi[i] = float32(a*cos[i])-float32(b*s), float32(a*s)+float32(b*cos[i])
	}
}

func timesGo(dst, x []float32, factor float32) {
	for i, v := range x {
		dst[i] = float32(v*factor) + 0
	}
}

// Range of expGo: below, the result is 0; above, it is that of the bound.
const (
	expLow  = -87.33654
	expHigh = 88
)

// expGo is e to the x within 2 units in the last place: x = n*ln 2 + f, a polynomial in f, times 2 to the n. expGo(0) is 1.
func expGo(x float32) float32 {
	if x < expLow {
		return 0
	}
	x = min(x, expHigh)
	n := float32(math.RoundToEven(float64(float32(x * 1.44269504))))
	f := x - float32(n*0.693359375)
	f += float32(n * 2.12194440e-4)
	p := float32(1.9875691500e-4)
	for _, c := range [...]float32{1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		p = float32(p*f) + c
	}
	y := float32(p*float32(f*f)) + f + 1
	return y * math.Float32frombits(uint32(int32(n)+127)<<23)
}

func toHalfGo(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = device.ToF16(v)
	}
}

func widenGo(dst unsafe.Pointer, stride int, src unsafe.Pointer, vectors int) {
	for v := range vectors {
		d := (*[8]float32)(unsafe.Add(dst, v*stride))
		for i := range d {
			d[i] = device.FromF16(at[uint16](src, v*8+i))
		}
	}
}
