package match

import "github.com/cohort-hpc/cohort/backend"

// Env is the envelope of a message, or the pattern of a receive.
type Env struct {
	Ctx    uint32 // the communicator
	Source int32  // world rank; in a pattern it may be backend.AnySource
	Tag    int32  // in a pattern it may be backend.AnyTag, which takes user tags only
}

// Takes reports whether a receive with pattern want can get the message have.
func (want Env) Takes(have Env) bool {
	return want.Ctx == have.Ctx &&
		(want.Source == have.Source || want.Source == backend.AnySource) &&
		(want.Tag == have.Tag || want.Tag == backend.AnyTag && have.Tag >= 0)
}
