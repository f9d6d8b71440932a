package model

import "math"

// The standard library's exponential and logarithm differ in their last bits from one architecture to the next, and compilers
// may fuse a product into a sum. A token must not depend on either, so the sampler has its own; float64(...) around a product
// forbids fusing.

const (
	log2e = 1.44269504088896338700e+00
	ln2Hi = 6.93147180369123816490e-01
	ln2Lo = 1.90821492927058770002e-10
)

// roots holds 2 to the j/64, from square roots, which are exact to the last bit everywhere.
var roots = func() (t [64]float64) {
	for j := range t {
		t[j] = 1
		root := 2.0
		for bit := 32; bit > 0; bit /= 2 {
			root = math.Sqrt(root)
			if j&bit != 0 {
				t[j] *= root
			}
		}
	}
	return t
}()

// exp is e to the x for x up to 700; 0 below -700 and for NaN. With x = (64 k + j) ln 2 / 64 + r, it is 2^k 2^(j/64) e^r.
func exp(x float64) float64 {
	if !(x >= -700) {
		return 0
	}
	if x > 700 {
		x = 700
	}
	n := math.Floor(float64(x*(64*log2e)) + 0.5)
	r := x - float64(n*(ln2Hi/64))
	r -= float64(n * (ln2Lo / 64)) // at most 0.0055
	p := 1.0/24 + float64(r*(1.0/120))
	p = 1.0/6 + float64(r*p)
	p = 0.5 + float64(r*p)
	p = 1 + float64(r*p)
	p = 1 + float64(r*p)
	k := int64(n)
	return float64(roots[k&63]*p) * math.Float64frombits(uint64(k>>6+1023)<<52)
}

// logOf is the natural logarithm of a positive, normal number.
func logOf(x float64) float64 {
	bits := math.Float64bits(x)
	k := float64(int64(bits>>52) - 1023)
	m := math.Float64frombits(bits&(1<<52-1) | 1023<<52) // [1, 2)
	if m > math.Sqrt2 {
		m /= 2
		k++
	}
	s := (m - 1) / (m + 1)
	s2 := float64(s * s)
	sum := 0.0
	for i := 23; i >= 1; i -= 2 { // s + s^3/3 + s^5/5 + ...
		sum = 1/float64(i) + float64(sum*s2)
	}
	return float64(k*ln2Hi) + (float64(2*float64(s*sum)) + float64(k*ln2Lo))
}
