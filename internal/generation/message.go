package generation

// A Request is a message from a process to its launcher.
type Request struct {
	Ask      *Ask    `json:",omitempty"`
	Lost     []int   `json:",omitempty"` // of the last Ask, when more ranks count as lost
	Withdraw bool    `json:",omitempty"` // the last Ask
	Joined   bool    `json:",omitempty"` // it is connected with the other ranks of its place
	Failed   bool    `json:",omitempty"` // it cannot be, or its time is over
	Share    *string `json:",omitempty"` // from rank 0, for all ranks of its generation
	Alive    bool    `json:",omitempty"` // answers Alive
}

// Ask is a request for a place in the next generation.
type Ask struct {
	Lost []int `json:",omitempty"` // ranks of its generation that the process counts as lost
}

// A Message is one from the launcher to a process. One field is set.
type Message struct {
	Place   *Place  `json:",omitempty"` // answers Ask
	Missing []int   `json:",omitempty"` // answers Withdraw, if no other answer to Ask is on its way: who had not asked, this rank first
	Out     string  `json:",omitempty"` // why the process has no place any more
	Left    bool    `json:",omitempty"` // with Out: it leaves a job that shrinks
	Shared  *string `json:",omitempty"` // what rank 0 shares
	Go      bool    `json:",omitempty"` // all ranks of the generation have joined
	Broken  string  `json:",omitempty"` // why they cannot: in place of Go
	Resize  bool    `json:",omitempty"` // the job is to have another size
	Alive   bool    `json:",omitempty"` // others wait for this process, which is to answer whether it calls Enter or not
}

// Place is a place in a world.
type Place struct {
	Generation int
	Rank, Size int
	Job        string // the name of the generation, which no other generation or job has
}
