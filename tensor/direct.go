package tensor

// takesDevices reports whether device memory is given to the library beneath.
func (k *core) takesDevices() bool { return k.cfg.Direct == "on" }
