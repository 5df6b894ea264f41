/**
 * Writes the "newc" archive that the kernel unpacks at boot. Each entry is a header of hexadecimal numbers with a name,
 * padded to 4 bytes, then the content, padded to 4 bytes.
 */

/**
 * @typedef {object} CpioEntry
 * @property {string} name   without a leading slash
 * @property {number} mode   with the file type's bits
 * @property {Buffer} [content]
 */

export const DIRECTORY = 0o040755;
export const EXECUTABLE = 0o100755;
export const REGULAR = 0o100644;

const TRAILER = 'TRAILER!!!';

/**
 * Builds an archive with owner root, time 0 and inode numbers in order: the same entries give the same bytes.
 * @param {readonly CpioEntry[]} entries
 * @returns {Buffer}
 */
export function buildCpio(entries) {
  const parts = entries.flatMap((entry, index) => buildEntry(entry, index + 1));
  return Buffer.concat([...parts, ...buildEntry({ name: TRAILER, mode: 0 }, 0)]);
}

/**
 * @param {CpioEntry} entry
 * @param {number} inode
 */
function buildEntry(entry, inode) {
  const content = entry.content ?? Buffer.alloc(0);
  const name = Buffer.from(`${entry.name}\0`);
  const links = (entry.mode & 0o170000) === 0o040000 ? 2 : 1;
  //               ino    mode        uid gid links  mtime size            device ×4   name length  check
  const fields = [inode, entry.mode, 0, 0, links, 0, content.length, 0, 0, 0, 0, name.length, 0];
  const header = Buffer.from(`070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}`);
  return [header, name, padding(header.length + name.length), content, padding(content.length)];
}

/** @param {number} length */
function padding(length) {
  return Buffer.alloc((4 - (length % 4)) % 4);
}
