package openapi

// Held reports whether the schemas are in memory.
func Held(d *Documents) bool { return d.data.Held() }

// Release releases the schemas at once.
func Release(d *Documents) { d.data.Release() }
