/**
 * zstd level 1 is a compromise for guests without KVM, which decompress under emulation. Measured in such a guest on
 * node:22-slim (263 MB of files, 128 KiB blocks): reading everything cold took 12–17 s with lz4 and 14–19 s with zstd
 * level 1, a cold `node -e 0` took 1.6–4.1 s and 2.0–4.2 s. Little of that time is decompression. lz4 makes the image a
 * third larger (126 MB, not 95 MB), on disk and in the host's page cache, and unsquashfs refuses what tar2sqfs 1.2
 * writes with it. Smaller blocks gained nothing. gzip packs four times slower.
 */
const COMPRESSOR = ['--compressor', 'zstd', '--comp-extra', 'level=1'];

/** Returns the arguments of tar2sqfs to pack the archive from its standard input into a file, which may exist. */
export function squashfsArguments(path: string): string[] {
  // --no-skip: an entry that cannot be stored is an error, not a warning.
  return ['--quiet', '--force', '--no-skip', ...COMPRESSOR, path];
}
