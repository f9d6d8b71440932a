package wire

// Version is the first byte of every body, envelope and header.
const Version = 1

// Limits of what a message may hold, checked when it is encoded and when it is decoded. Sizes are in bytes.
const (
	MaxMessage     = 8 << 20 // one message of the bus
	MaxSlug        = 32      // ids of processes
	MaxTenant      = 64      // a tenant's slug
	MaxName        = 256     // a model's full name
	MaxCode        = 64      // an error's code
	MaxDetail      = 4096    // an error's detail
	MaxParam       = 256     // an error's param
	MaxTokens      = 2 << 20 // token ids of a request
	MaxPages       = 1 << 19 // page slots of a reservation
	MaxRows        = 1 << 31 // rows, tokens, pages and other counts lie in [0, MaxRows)
	MaxLayers      = 1 << 12
	MaxDim         = 1 << 20 // length of a hidden vector
	MaxBias        = 300     // entries of a logit bias
	MaxStop        = 64      // stop strings
	MaxStopText    = 4096    // a stop string
	MaxStopTokens  = 1024
	MaxTop         = 20       // alternatives of a token
	MaxTokenText   = 64 << 10 // text that one token adds
	MaxHeldText    = 1 << 20  // text that an end adds
	MaxReplyTokens = 4096     // tokens of one reply
	MaxReplies     = 4096     // replies of one Resent
	MaxHeader      = 512      // the header of a frame, reply or envelope
	MaxTicks       = 1 << 53  // a duration lies in [-MaxTicks, MaxTicks]
	SigSize        = 64       // an Ed25519 signature
	TagSize        = 16       // the tag at the end of sealed bytes
)
