package resume

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addEntropy mixes the host's random bytes into the kernel's random generator and forces a reseed. Both are needed:
// without the reseed, clones of one template kept producing the same "random" numbers.
func addEntropy(random *os.File, entropy []byte) error {
	// struct rand_pool_info: int entropy_count (bits), int buf_size (bytes), the bytes.
	info := make([]byte, 8, 8+len(entropy))
	binary.NativeEndian.PutUint32(info[0:], uint32(len(entropy)*8))
	binary.NativeEndian.PutUint32(info[4:], uint32(len(entropy)))
	info = append(info, entropy...)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, random.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info[0])))
	runtime.KeepAlive(info)
	if errno != 0 {
		return fmt.Errorf("RNDADDENTROPY: %w", errno)
	}
	if err := unix.IoctlSetInt(int(random.Fd()), reseed, 0); err != nil {
		return fmt.Errorf("RNDRESEEDCRNG: %w", err)
	}
	return nil
}

// reseed is RNDRESEEDCRNG of <linux/random.h>.
const reseed = 0x5207
