package device

import "quire/kvtransfer/page"

// Step is one run of the device: ops over the rows of a batch, in order.
type Step struct {
	Batch *Batch
	Ops   []Op
}

// Batch says which rows a step computes. Row i of every buffer that ops name is row i of the batch.
type Batch struct {
	Pool   Pool
	Tokens []int32 // [rows]
	Seqs   []Seq   // Invariant: they partition the rows, in order.
}

// Seq is a run of rows of one sequence. Row Row+i has position From+i.
type Seq struct {
	Row, Rows int
	From      int
	View      page.View  // the rows that may be read: at least [0, From)
	Grant     page.Grant // where keys and values of the rows go: covers [From, From+Rows); the zero Grant for Scratch
	// Scratch takes keys and values, as stored, when there is no Grant: [layers][Rows][2][kvHeads][headDim], layers as in the ops.
	// Attention then reads all rows up to its own from the pages: the view must cover [0, From+Rows).
	Scratch []byte
}

// Op is one operation over all rows of a batch.
type Op interface{ op() }

// Embed looks rows of Table up: Out[i] = Table[Tokens[i]].
type Embed struct {
	Out   Buffer // [rows, Table.Cols] f32
	Table Matrix
}

// Norm is RMSNorm: Out[i] = In[i] / sqrt(mean(In[i]^2) + Eps) * Weight.
type Norm struct {
	Out, In Buffer // [rows, dim] f32; may be the same
	Weight  Buffer // [1, dim] f32
	Eps     float32
	Rows    int // how many rows, from 0 on; 0: all of the batch
}

// MatMul multiplies the same input with several matrices: Out[i] = W * In[i], or Out[i] += W * In[i] with Add.
type MatMul struct {
	In    Buffer // [rows, Cols] f32
	Parts []Part
	Add   bool
	Rows  int // how many rows, from 0 on; 0: all of the batch
}

// Part is one matrix of a MatMul and where its product goes.
type Part struct {
	W   Matrix
	Out Buffer // [rows, W.Rows] f32
}

// Rotate turns the first Dims numbers of each head of Q and K by position and stores K and V of the layer: in the granted pages,
// or in the sequence's Scratch. Before that it adds what models add to Q, K and V, then norms each head of Q and K, where
// they do. All three buffers hold the results.
type Rotate struct {
	Layer       int
	Q, K, V     Buffer // [rows, heads*headDim], [rows, kvHeads*headDim] f32; Q may be nil: keys and values alone
	Bias        Triple // each [1, cols] of its buffer f32, or nil
	NormQ       Buffer // [1, headDim] f32, or nil: weight of an RMSNorm over each head of Q
	NormK       Buffer // [1, headDim] f32, or nil: the same of K
	Eps         float32
	Sin         Buffer // [context, Dims/2] f32
	Cos         Buffer // [context, Dims/2] f32
	Dims        int
	Interleaved bool // pairs are (2i, 2i+1), else (i, i+Dims/2)
}

// Triple is something of queries, keys and values each.
type Triple struct{ Q, K, V Buffer }

// Attend is causal attention of each row over its sequence's stored keys and values up to its own position.
type Attend struct {
	Layer int
	Q     Buffer  // [rows, heads*headDim] f32
	Out   Buffer  // [rows, heads*headDim] f32
	Scale float32 // on the scores, 1/sqrt(headDim) as a rule
}

// SwiGLU is Out[i] = Gate[i] * sigmoid(Gate[i]) * Up[i]. Out may be Gate.
type SwiGLU struct {
	Out, Gate, Up Buffer // [rows, ffn] f32
}

// Gather copies chosen rows together: Out[i] = In[Rows[i]].
type Gather struct {
	Out, In Buffer
	Rows    []int
}

// Download copies chosen rows of a buffer to host memory: To[i] = From[Rows[i]].
type Download struct {
	From Buffer
	Rows []int
	To   [][]float32 // each [cols]
}

// Compare holds what Rotate put into the Scratch of sequences against what their pages hold, bit for bit.
type Compare struct {
	Layers int // [0, Layers)
	// Differs becomes, for each sequence of the batch, the smallest (row*Layers + layer)*2 + part that differs, part being 0 for keys
	// and 1 for values; -1 if none does, or the sequence has no Scratch.
	Differs []int32
}

func (Embed) op()    {}
func (Norm) op()     {}
func (MatMul) op()   {}
func (Rotate) op()   {}
func (Attend) op()   {}
func (SwiGLU) op()   {}
func (Gather) op()   {}
func (Download) op() {}
func (Compare) op()  {}
