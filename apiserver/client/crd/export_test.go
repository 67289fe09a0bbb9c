package crd

// Unpacked returns what SchemaOf reads the schemas from.
func (d *Definition) Unpacked() (any, error) { return d.packed.unpack() }
