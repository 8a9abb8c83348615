package arch

import (
	"encoding/xml"
	"path"
	"strings"
	"testing"
)

// box is a group of docs/design.svg: rectangles, and the packages that stand in them.
type box struct {
	Packages string `xml:"data-packages,attr"`
	Parts    []struct {
		X      float64 `xml:"x,attr"`
		Y      float64 `xml:"y,attr"`
		Width  float64 `xml:"width,attr"`
		Height float64 `xml:"height,attr"`
	} `xml:"rect"`
}

// on reports whether a part of b stands on a part of another box, with the gap that the drawing has.
func (b *box) on(other *box) bool {
	for _, p := range b.Parts {
		for _, q := range other.Parts {
			if below := q.Y - p.Y - p.Height; below >= 0 && below < 5 && p.X < q.X+q.Width && q.X < p.X+p.Width {
				return true
			}
		}
	}
	return false
}

// TestDesignDrawingShowsImports checks what the drawing says of itself: a box stands on packages that it imports, and
// imports only boxes whose tops are lower.
func TestDesignDrawingShowsImports(t *testing.T) {
	const document = "docs/design.svg"
	var drawing struct {
		Boxes []*box `xml:"g"`
	}
	if err := xml.Unmarshal([]byte(read(t, document)), &drawing); err != nil {
		t.Fatal(err)
	}
	boxes := make(map[string]*box)
	for _, b := range drawing.Boxes {
		for p := range strings.FieldsSeq(b.Packages) {
			boxes[strings.TrimPrefix(p, ".")] = b
		}
	}
	drawn := func(folder string) *box { // the box of a package, or of the folder that it is in
		for boxes[folder] == nil && strings.Contains(folder, "/") {
			folder = path.Dir(folder)
		}
		return boxes[folder]
	}
	imports, found := make(map[[2]*box]bool), make(map[*box]bool)
	for _, s := range allSources(t) {
		from := drawn(s.folder)
		found[from] = true
		for _, i := range s.imports {
			if s.test || i != module && !strings.HasPrefix(i, module+"/") {
				continue
			}
			to := drawn(strings.TrimPrefix(strings.TrimPrefix(i, module), "/"))
			imports[[2]*box{from, to}] = true
			if from != nil && to != nil && from != to && from.Parts[0].Y >= to.Parts[0].Y {
				t.Errorf("%s imports %s, which %s does not show below it", s.path, i, document)
			}
		}
	}
	for _, b := range drawing.Boxes {
		if !found[b] {
			t.Errorf("%s has a box for %s, which do not exist", document, b.Packages)
		}
		for _, under := range drawing.Boxes {
			if b.on(under) && !imports[[2]*box{b, under}] {
				t.Errorf("%s shows %s on %s, which it does not import", document, b.Packages, under.Packages)
			}
		}
	}
}
