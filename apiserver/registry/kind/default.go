package kind

// SetIfZero sets a zero field to its default.
func SetIfZero[T comparable](at *T, value T) {
	var zero T
	if *at == zero {
		*at = value
	}
}

// SetIfNil sets a nil field to its default.
func SetIfNil[T any](at **T, value T) {
	if *at == nil {
		*at = &value
	}
}
