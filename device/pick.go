package device

// Pick chooses a token from each of the first rows of Logits, as model.Picker would from the same logits. Not every device has it:
// ask Picks.
type Pick struct {
	Logits Buffer // [rows, vocab] f32
	How    []Sampling
	To     []int32 // the tokens; -1 where the host must choose
}

// Sampling is how a token is chosen.
type Sampling struct {
	Temperature float64 // 0 or less: the most likely token
	TopP, MinP  float64
	TopK        int     // 0: all
	U           float64 // a random number in [0, 1)
}

func (Pick) op() {}

// Picks says whether a device takes Pick.
func Picks(d Device) bool {
	p, ok := d.(interface{ Picks() bool })
	return ok && p.Picks()
}
