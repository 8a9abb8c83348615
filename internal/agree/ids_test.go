package agree

import "testing"

// The ids that are kept are those that an agreement under way may claim.
func TestIDsForgetWhatNoAgreementMayClaim(t *testing.T) {
	var ids IDs
	claim := func() {
		t.Helper()
		if free, err := ids.Claim(ids.Propose(0, 0)); !free || err != nil {
			t.Fatalf("the next id is taken: %v", err)
		}
	}
	kept := func(want int) {
		t.Helper()
		if len(ids.claimed) != want {
			t.Errorf("%d ids are kept, want %d", len(ids.claimed), want)
		}
	}
	first := ids.Begin()
	claim() // 1
	second := ids.Begin()
	claim() // 2
	claim() // 3
	third := ids.Begin()
	if below := ids.End(second); below != first {
		t.Errorf("ids below %d are settled while the agreement goes on that began at %d", below, first)
	}
	kept(3)
	for id := uint32(1); id <= 3; id++ {
		if free, _ := ids.Claim(id); free {
			t.Errorf("id %d is claimed twice", id)
		}
	}
	if below := ids.End(first); below != third {
		t.Errorf("ids below %d are settled, want %d", below, third)
	}
	kept(0)
	claim() // 4
	kept(1)
	if below := ids.End(third); below != 5 {
		t.Errorf("ids below %d are settled at the end, want 5", below)
	}
	kept(0)
}
