import { readFile } from 'node:fs/promises';

/**
 * @typedef {object} OperatingSystem
 * @property {string} id        `debian`, `ubuntu`, …
 * @property {string} codename  `bookworm`, `noble`, …
 * @property {string} name      for people
 */

/**
 * @param {string} text content of os-release(5)
 * @returns {OperatingSystem}
 */
function parseOsRelease(text) {
  const values = new Map(
    text.split('\n').flatMap((line) => {
      const match = /^([A-Z_]+)=["']?(.*?)["']?$/.exec(line.trim());
      return match === null ? [] : [[match[1] ?? '', match[2] ?? '']];
    }),
  );
  const id = values.get('ID') ?? 'unknown';
  return { id, codename: values.get('VERSION_CODENAME') ?? '', name: values.get('PRETTY_NAME') ?? id };
}

/** @returns {Promise<OperatingSystem>} */
export async function readOperatingSystem() {
  return parseOsRelease(await readFile('/etc/os-release', 'utf8'));
}
