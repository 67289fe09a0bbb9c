// Package burst gives back the memory of maps after a burst: a Go map keeps the size that it had with the most keys.
package burst

import "maps"

// few is the number of keys up to which the memory of a map is kept for the next ones.
const few = 100

// Most is the largest number of keys of a map since its memory was last given back. Its zero value is that of an empty map.
type Most int

// Grown records the number of keys of the map after one was added.
func (m *Most) Grown(keys int) { *m = max(*m, Most(keys)) }

// Fit returns the map, or a smaller copy of it if it has less than a quarter of the keys that it once had. Copying is
// rare enough that a caller may call Fit after each removal. The caller must replace its map with the result.
func Fit[K comparable, V any](keys map[K]V, most *Most) map[K]V {
	if *most <= few || len(keys) >= int(*most)/4 {
		return keys
	}
	fitting := make(map[K]V, len(keys)) // maps.Clone copies the size as well
	maps.Copy(fitting, keys)
	*most = Most(len(fitting))
	return fitting
}
