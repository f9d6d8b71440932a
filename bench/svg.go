package bench

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
)

// Sizes of a plot, in pixels.
const (
	plotWidth, plotHeight = 720, 360
	plotLeft, plotTop     = 60, 40
	plotRight, plotBottom = 20, 50
)

// curve is one distribution of a plot.
type curve struct {
	name, colour string
	values       []float64 // milliseconds
}

// SVG draws the distributions of TTFT, ITL and E2E: the share of values at or below each time, on a logarithmic axis. The file
// stands alone.
func (r ServeReport) SVG() []byte {
	curves := []curve{{"ITL", "#1b9e77", nil}, {"TTFT", "#7570b3", nil}, {"E2E", "#d95f02", nil}}
	for _, s := range r.Samples {
		if s.Error != "" {
			continue
		}
		for _, g := range s.Gaps {
			curves[0].values = append(curves[0].values, 1e3*g)
		}
		curves[1].values = append(curves[1].values, 1e3*s.TTFT)
		curves[2].values = append(curves[2].values, 1e3*s.E2E)
	}
	return drawCurves(r.Model+": "+r.Load, curves)
}

func drawCurves(title string, curves []curve) []byte {
	low, high := decades(curves)
	x := func(v float64) float64 {
		at := (math.Log10(max(v, math.Pow10(low))) - float64(low)) / float64(high-low)
		return plotLeft + at*(plotWidth-plotLeft-plotRight)
	}
	y := func(share float64) float64 { return plotHeight - plotBottom - share*(plotHeight-plotTop-plotBottom) }
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%d" y="20">%s</text>`+"\n", plotLeft, html.EscapeString(title))
	for d := low; d <= high; d++ {
		v := math.Pow10(d)
		fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%g ms</text>`+"\n", x(v), y(0), y(1), x(v),
			plotHeight-plotBottom+18, v)
	}
	for _, share := range []float64{0, 0.5, 0.9, 0.99, 1} {
		fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="#ddd"/>`, x(math.Pow10(low)), y(share), x(math.Pow10(high)))
		if share != 0.99 {
			fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%g %%</text>`, plotLeft-6, y(share)+4, 100*share)
		}
		b.WriteByte('\n')
	}
	for i, c := range curves {
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", plotLeft+i*80, plotHeight-12, c.colour, c.name)
		drawCurve(&b, c, x, y)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// drawCurve draws at most 500 steps of a distribution.
func drawCurve(b *bytes.Buffer, c curve, x, y func(float64) float64) {
	if len(c.values) == 0 {
		return
	}
	v := slices.Sorted(slices.Values(c.values))
	fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="2" d="M%.1f %.1f`, c.colour, x(v[0]), y(0))
	steps := min(500, len(v))
	for k := 1; k <= steps; k++ {
		i := k*len(v)/steps - 1
		fmt.Fprintf(b, "H%.1fV%.1f", x(v[i]), y(float64(i+1)/float64(len(v))))
	}
	b.WriteString(`"/>` + "\n")
}

// decades are the powers of ten of milliseconds around all values.
func decades(curves []curve) (low, high int) {
	least, most := math.Inf(1), 0.0
	for _, c := range curves {
		for _, v := range c.values {
			if v > 0 {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	if most == 0 {
		return 0, 1
	}
	low = int(math.Floor(math.Log10(least)))
	return low, max(low+1, int(math.Ceil(math.Log10(most))))
}
