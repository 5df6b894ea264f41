package workspace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Place and fields of ext4's superblock: fs/ext4/ext4.h of the kernel.
const (
	superblockOffset = 1024
	superblockBytes  = 1024

	fieldBlocksLow    = 0x04
	fieldBlockSize    = 0x18
	fieldMagic        = 0x38
	fieldState        = 0x3a
	fieldIncompatible = 0x60
	fieldReadOnly     = 0x64
	fieldBlocksHigh   = 0x150

	magic           = 0xef53
	stateHasErrors  = 0x2
	feature64Bit    = 0x80
	minBlockBytes   = 1024
	maxBlockSizeLog = 6
)

// Features that kernels know whose version is at least the guest's. Others need a newer kernel.
const (
	knownIncompatible = 0x2 | 0x4 | 0x10 | 0x40 | feature64Bit | 0x100 | 0x200 | 0x400 | 0x2000 | 0x4000 | 0x8000 | 0x10000 | 0x20000
	knownReadOnly     = 0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40 | 0x100 | 0x200 | 0x400 | 0x1000 | 0x2000 | 0x8000 | 0x10000
)

// superblock is what the agent must know of the file system on a disk.
type superblock struct {
	bytes uint64
	// hasErrors means that the kernel has found damage, in this guest or an earlier one.
	hasErrors bool
	// unknown are the features that the guest's kernel does not know.
	unknownIncompatible, unknownReadOnly uint32
}

var errNoExt4 = errors.New("it has no ext4 file system")

// parseSuperblock reads a superblock. The disk may have been imported, so it may contain anything.
func parseSuperblock(text []byte) (superblock, error) {
	if len(text) < superblockBytes || binary.LittleEndian.Uint16(text[fieldMagic:]) != magic {
		return superblock{}, errNoExt4
	}
	word := func(field int) uint32 { return binary.LittleEndian.Uint32(text[field:]) }
	if word(fieldBlockSize) > maxBlockSizeLog {
		return superblock{}, errNoExt4
	}
	blocks := uint64(word(fieldBlocksLow))
	if word(fieldIncompatible)&feature64Bit != 0 {
		blocks |= uint64(word(fieldBlocksHigh)) << 32
	}
	blockBytes := uint64(minBlockBytes) << word(fieldBlockSize)
	if blocks > maxSizeBytes/blockBytes {
		return superblock{}, errNoExt4
	}
	return superblock{
		bytes:               blocks * blockBytes,
		hasErrors:           binary.LittleEndian.Uint16(text[fieldState:])&stateHasErrors != 0,
		unknownIncompatible: word(fieldIncompatible) &^ knownIncompatible,
		unknownReadOnly:     word(fieldReadOnly) &^ knownReadOnly,
	}, nil
}

// readSuperblock returns the superblock and the size of a disk. The kernel may have cached what was on the disk before
// the host replaced its content, so forget makes it read anew. A mounted file system is left in the cache.
func readSuperblock(device string, forget bool) (super superblock, deviceBytes uint64, err error) {
	file, err := openBlockDevice(device)
	if err != nil {
		return superblock{}, 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if forget {
		if _, err := unix.IoctlRetInt(int(file.Fd()), unix.BLKFLSBUF); err != nil {
			return superblock{}, 0, fmt.Errorf("forget the cache of %s: %w", device, err)
		}
	}
	text := make([]byte, superblockBytes)
	if _, err := file.ReadAt(text, superblockOffset); err != nil {
		return superblock{}, 0, err
	}
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return superblock{}, 0, err
	}
	super, err = parseSuperblock(text)
	return super, uint64(end), err
}

// openBlockDevice does not wait for what root in the guest may have put in the place of the device.
func openBlockDevice(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().Type() != os.ModeDevice {
		err = fmt.Errorf("%s is not a block device", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
