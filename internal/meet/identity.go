package meet

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/internal/frame"
)

// Version is the version of the protocol: handshake, rendezvous, and frames. A peer with another
// version is refused.
const Version uint16 = 12

// Launcher stands for the rank of a coordinator that is not a rank of the job.
const Launcher = -1

// maxJob is the longest name of a job in bytes.
const maxJob = 1024

// An Identity is what a process proves to its peers, and how it meets them. It must not change after its first use, and is
// safe for concurrent use.
type Identity struct {
	Job         string // its name, the same on all ranks
	Secret      Secret
	Rank        int // or Launcher
	Size        int
	Coordinator bool   // this process is the coordinator
	Replaced    bool   // a process that ends before all ranks have joined is started again, maybe elsewhere: wait for it
	Listener    string // of a rank that accepts connections: Member.Listener
	TLS         *TLS   // nil for none
	First       First
}

// First is the first world of a job. Certificates have the names of its ranks, also in later worlds.
type First struct {
	Job   string // its name; "": this one's
	Ranks []int  // which rank of it each rank is; nil: the same
}

// Check returns an error that names what is missing or wrong, nil if the identity is complete.
func (id *Identity) Check() error {
	switch {
	case !id.Secret.Valid():
		return errors.New("the job has no secret; its ranks need one to authenticate each other")
	case id.Job == "" || len(id.Job) > maxJob:
		return fmt.Errorf("the name of the job (COHORT_JOB) has %d bytes, want 1 to %d", len(id.Job), maxJob)
	case id.Size < 1 || id.Size > frame.MaxRanks:
		return fmt.Errorf("a job of %d ranks, want 1 to %d", id.Size, frame.MaxRanks)
	case id.Rank < Launcher || id.Rank >= id.Size:
		return fmt.Errorf("rank %d of %d", id.Rank, id.Size)
	case id.First.Ranks != nil && len(id.First.Ranks) != id.Size:
		return fmt.Errorf("%d ranks of the first world are %d of this one", len(id.First.Ranks), id.Size)
	}
	return nil
}

// who names a rank in a sentence.
func who(rank int) string {
	if rank == Launcher {
		return "the launcher"
	}
	return fmt.Sprintf("rank %d", rank)
}

// Toward returns the identity with which this process dials the listener of a rank.
func (id *Identity) Toward(m *Member) *Identity {
	if m.Listener == id.Listener {
		return id
	}
	to := *id
	to.Listener = m.Listener
	return &to
}

// keys are what an identity makes of the job's name and secret, and of the listener that is dialed.
type keys struct {
	job [sha256.Size]byte // hash of the name, of which 8 bytes go over the network
	key [sha256.Size]byte // for proofs, of this job alone even if another has the same secret
}

func (id *Identity) keys() keys {
	k := keys{job: sha256.Sum256([]byte("cohort tcp job\x00" + id.Job + "\x00" + id.Listener))}
	copy(k.key[:], derive(id.Secret.key[:], k.job[:], "cohort tcp proof", sha256.Size))
	return k
}

// derive is HKDF-SHA-256 (RFC 5869) for lengths that it always has.
func derive(secret, salt []byte, label string, n int) []byte {
	b, err := hkdf.Key(sha256.New, secret, salt, label, n)
	if err != nil { // n above 255 hashes, or a mode of FIPS that refuses short keys
		panic("meet: " + err.Error())
	}
	return b
}

// proofSize is that of a proof in bytes: HMAC-SHA-256, of which RFC 2104, section 5, lets half be
// left out. These are three quarters.
const proofSize = 24

// prove signs a transcript, as one side of the handshake. Every part has a fixed length, but for a last one that
// is empty without TLS. The hello states whether TLS is used, so no two transcripts are the same.
func (k *keys) prove(label string, parts ...[]byte) [proofSize]byte {
	mac := hmac.New(sha256.New, k.key[:])
	mac.Write([]byte(label + "\x00"))
	mac.Write(k.job[:])
	mac.Write(slices.Concat(parts...))
	return [proofSize]byte(mac.Sum(nil)[:proofSize])
}
