// Package values sends and receives any Go value: strings, maps, structs with slices, pointers.
//
//	cfg, err = values.Bcast(world, cfg, 0)           // rank 0's configuration on all ranks
//	all, err := values.Gather(world, result, 0)      // one result of each rank, on rank 0
//	x, st, err := values.Recv[Task](world, cohort.AnySource, 0)
//
// The functions have the names and the rules of those of package cohort. They take a value and return one,
// so no rank needs to know a length. They suit configurations, results and a program's own messages. Slices
// of numbers are sent many times faster by package cohort, which does not encode them.
//
// # What can be sent
//
// A type that has MarshalBinary and UnmarshalBinary is encoded by these, and any other by encoding/gob.
// gob would leave out fields that are not exported, and functions and channels. Here they are
// [cohort.ErrType], and the error names the field. Values behind an interface are sent if their type is
// known to gob.Register on all ranks. They follow gob's own rules, which leave such fields out.
//
// A nil pointer or interface arrives as nil. A nil pointer that is an element of a slice, array or map is
// ErrType, because gob cannot send it. An empty slice, and a pointer to a zero within a struct, may arrive as nil
// too, because gob does not send them. A value that contains itself, or whose pointers, slices and maps are nested
// deeper than 100000, is ErrType. A struct{} can be sent, but not within another value.
//
// All ranks use the same type. gob accepts structs whose fields differ, if those of equal names fit.
//
// # Memory
//
// A result shares no memory with the arguments, except that Bcast returns root's own value on root. While a value of
// n bytes is sent, it needs about 3n bytes on the sending and on the receiving rank.
//
// # Errors
//
// Every error is a [cohort.OpError]. A value that cannot be encoded is ErrType on its rank. The other
// ranks of a collective that need the value get [cohort.ErrMismatch], which names that rank and the reason.
// The communicator stays usable. The methods of values run in goroutines of their own. One that panics or calls
// runtime.Goexit is ErrType too, and the other ranks go on. A message that cannot be decoded is ErrType and names its
// sender: decoding does not panic, and its memory is limited by the message's length. Two kinds of forged
// messages are exceptions. One is a map that claims a huge length, in a type that contains interfaces. The other is
// a recursive type nested millions deep.
package values
