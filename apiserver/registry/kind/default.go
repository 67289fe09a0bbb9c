package kind

// SetIfZero gives a field its default.
func SetIfZero[T comparable](at *T, value T) {
	var zero T
	if *at == zero {
		*at = value
	}
}

// SetIfNil gives an optional field its default.
func SetIfNil[T any](at **T, value T) {
	if *at == nil {
		*at = &value
	}
}
