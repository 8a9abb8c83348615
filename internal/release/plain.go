//go:build amd64 && !race

package release

// Uint32 stores v in a word that others read atomically. Everything that the caller has stored before is visible to a
// reader that sees v. The stores of one processor are seen in their order on amd64, so a plain one does. An atomic one is
// an exchange, which waits for all of them.
func Uint32(p *uint32, v uint32) { *p = v }

// Uint64 is Uint32 of a longer word.
func Uint64(p *uint64, v uint64) { *p = v }
