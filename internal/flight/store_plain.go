//go:build amd64 && !race

package flight

// store writes a word of a record. Others on amd64 see the stores of one processor in their order,
// so that a plain one does where an atomic one would be an exchange, which costs as much as all the
// rest.
func store(p *uint64, v uint64) { *p = v }
