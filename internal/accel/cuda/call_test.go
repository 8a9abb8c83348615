//go:build linux && (amd64 || arm64) && !cohort_nocuda

package cuda

import (
	"testing"

	"github.com/ebitengine/purego"
)

// BenchmarkCall measures calls of the stand-in that do nothing: alone, with the context already
// current, with pushing and popping it, and through purego.RegisterFunc.
func BenchmarkCall(b *testing.B) {
	s := newStandin(b)
	dev := firstDevice(b, s).(*device)
	var registered func(stream uintptr) int32
	purego.RegisterFunc(&registered, s.lib.at[cuStreamSynchronize])
	b.Run("registered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			registered(0)
		}
	})
	f := frames.Get().(*frame)
	f.lib = s.lib
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.call(cuStreamSynchronize, 0)
		}
	})
	frames.Put(f)
	b.Run("pushed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := dev.do("", cuStreamSynchronize, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("current", func(b *testing.B) {
		outer, err := dev.enter()
		if err != nil {
			b.Fatal(err)
		}
		defer dev.leave(outer)
		b.ReportAllocs()
		for b.Loop() {
			if err := dev.do("", cuStreamSynchronize, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}
