package spawn

import "encoding/json"

// Text is a string that need not be UTF-8, such as an argument or a file name. In JSON it is encoded as bytes,
// because a JSON string would change it.
type Text string

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(t)) }

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(b []byte) error {
	var v []byte
	err := json.Unmarshal(b, &v)
	*t = Text(v)
	return err
}

// Convert returns strings as texts, or texts as strings.
func Convert[To, From ~string](list []From) []To {
	all := make([]To, len(list))
	for i, v := range list {
		all[i] = To(v)
	}
	return all
}
