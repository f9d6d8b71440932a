package model

import "math"

// Frequencies gives the angle in radians by which each pair turns from one position to the next, [Dims/2], and the factor on
// the turned numbers of queries and keys each (1 but for yarn and longrope). context is Config.Context. Both are fixed for
// a model: no variant here depends on how long a sequence has become, since a key turned once must stay right for ever.
func (r Rope) Frequencies(context int) (freqs []float64, scale float64) {
	freqs = make([]float64, r.Dims/2)
	for i := range freqs {
		freqs[i] = math.Pow(r.Base, -2*float64(i)/float64(r.Dims))
	}
	scale = 1
	s := r.Scaling
	switch s.Kind {
	case "linear":
		for i := range freqs {
			freqs[i] /= s.Factor
		}
	case "llama3":
		s.llama3(freqs)
	case "yarn":
		s.yarn(freqs, r.Base, r.Dims)
		scale = s.yarnScale()
	case "longrope":
		factors := s.ShortFactors
		if context > s.OriginalContext {
			factors = s.LongFactors
		}
		divide(freqs, factors)
		scale = s.longScale(context)
	}
	divide(freqs, r.Factors)
	return freqs, scale
}

func divide(freqs, factors []float64) {
	for i, f := range factors {
		freqs[i] /= f
	}
}

// llama3 leaves fast pairs alone, slows slow ones by Factor, and blends between.
func (s RopeScaling) llama3(freqs []float64) {
	low := float64(s.OriginalContext) / s.LowFreqFactor
	high := float64(s.OriginalContext) / s.HighFreqFactor
	for i, f := range freqs {
		wave := 2 * math.Pi / f
		switch {
		case wave < high:
		case wave > low:
			freqs[i] = f / s.Factor
		default:
			smooth := (float64(s.OriginalContext)/wave - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
			freqs[i] = (1-smooth)*f/s.Factor + smooth*f
		}
	}
}

// yarn blends by how often a pair turns within the original context: more than BetaFast times stays, less than BetaSlow is
// slowed by Factor.
func (s RopeScaling) yarn(freqs []float64, base float64, dims int) {
	dim := func(turns float64) float64 {
		return float64(dims) * math.Log(float64(s.OriginalContext)/(turns*2*math.Pi)) / (2 * math.Log(base))
	}
	low := math.Max(0, math.Floor(dim(orElse(s.BetaFast, 32))))
	high := math.Min(float64(dims-1), math.Ceil(dim(orElse(s.BetaSlow, 1))))
	if low == high {
		high += 0.001
	}
	for i, f := range freqs {
		ramp := math.Min(1, math.Max(0, (float64(i)-low)/(high-low)))
		freqs[i] = f/s.Factor*ramp + f*(1-ramp)
	}
}

func (s RopeScaling) yarnScale() float64 {
	if s.AttentionFactor > 0 {
		return s.AttentionFactor
	}
	m := func(k float64) float64 {
		if s.Factor <= 1 {
			return 1
		}
		return 0.1*k*math.Log(s.Factor) + 1
	}
	if s.MScale > 0 && s.MScaleAllDim > 0 {
		return m(s.MScale) / m(s.MScaleAllDim)
	}
	return m(1)
}

func (s RopeScaling) longScale(context int) float64 {
	if s.AttentionFactor > 0 {
		return s.AttentionFactor
	}
	factor := s.Factor
	if s.OriginalContext > 0 && context > s.OriginalContext {
		factor = float64(context) / float64(s.OriginalContext)
	}
	if factor <= 1 || s.OriginalContext <= 1 {
		return 1
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(float64(s.OriginalContext)))
}

func orElse(v, def float64) float64 {
	if v > 0 {
		return v
	}
	return def
}
