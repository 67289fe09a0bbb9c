package owned

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/util/rand"
)

// Hash returns a name suffix derived from text and the number of collisions (nil: none so far): a 32-bit hash in
// letters and digits that form no words.
func Hash(text []byte, collisions *int32) string {
	h := fnv.New32a()
	h.Write(text)
	if collisions != nil {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(*collisions)))
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}
