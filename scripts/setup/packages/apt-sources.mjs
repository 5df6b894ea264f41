/**
 * Reads the apt sources that this machine's owner configured, so that set-up's additions (backports, the base image's
 * sources) come from the same mirror, with the same keys. This project contains no archive's address.
 *
 * @typedef {object} AptSource
 * @property {string} uri
 * @property {string[]} suites
 * @property {string[]} components
 * @property {string | undefined} signedBy  a key file's path, or a whole key
 * @property {boolean} trusted
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * @param {string} [root] directory of apt's configuration
 * @returns {AptSource[]} enabled sources of binary packages
 */
export function readAptSources(root = '/etc/apt') {
  const directory = join(root, 'sources.list.d');
  const names = existsSync(directory) ? readdirSync(directory).sort() : [];
  const files = [join(root, 'sources.list'), ...names.map((name) => join(directory, name))];
  return files.flatMap((file) => {
    if (!existsSync(file)) return [];
    if (file.endsWith('.sources')) return parseDeb822(readFileSync(file, 'utf8'));
    return file.endsWith('.list') ? parseOneLine(readFileSync(file, 'utf8')) : [];
  });
}

/**
 * @param {string} text `deb [signed-by=…] uri suite component…`
 * @returns {AptSource[]}
 */
export function parseOneLine(text) {
  return text.split('\n').flatMap((line) => {
    const match = /^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s*(.*)$/.exec(line.replace(/#.*/, '').trim());
    if (match === null) return [];
    const options = new Map(
      (match[1] ?? '')
        .trim()
        .split(/\s+/)
        .map((option) => splitAt(option, '=')),
    );
    return [
      {
        uri: match[2] ?? '',
        suites: [match[3] ?? ''],
        components: words(match[4]),
        signedBy: options.get('signed-by'),
        trusted: options.get('trusted') === 'yes',
      },
    ];
  });
}

/**
 * @param {string} text
 * @returns {AptSource[]}
 */
export function parseDeb822(text) {
  return text.split(/\n\s*\n/).flatMap((stanza) => {
    const fields = parseStanza(stanza);
    if (!words(fields.get('types')).includes('deb') || fields.get('enabled')?.trim().toLowerCase() === 'no')
      return [];
    return words(fields.get('uris')).map((uri) => ({
      uri,
      suites: words(fields.get('suites')),
      components: words(fields.get('components')),
      signedBy: fields.get('signed-by')?.trim(),
      trusted: fields.get('trusted')?.trim() === 'yes',
    }));
  });
}

/** @param {string} stanza */
function parseStanza(stanza) {
  /** @type {Map<string, string>} */
  const fields = new Map();
  let current = '';
  for (const line of stanza.split('\n').filter((text) => !text.startsWith('#'))) {
    const start = /^([A-Za-z-]+):(.*)$/.exec(line);
    if (start !== null) {
      current = (start[1] ?? '').toLowerCase();
      fields.set(current, (start[2] ?? '').trim());
    } else if (current !== '' && line.trim() !== '') {
      fields.set(current, `${fields.get(current)}\n${line}`); // an embedded key keeps its line breaks
    }
  }
  return fields;
}

/** @param {string | undefined} text */
function words(text) {
  return (text ?? '').split(/\s+/).filter(Boolean);
}

/**
 * @param {string} text
 * @param {string} separator
 * @returns {[string, string]}
 */
function splitAt(text, separator) {
  const index = text.indexOf(separator);
  return index < 0 ? [text, ''] : [text.slice(0, index), text.slice(index + 1)];
}

/**
 * @param {readonly AptSource[]} sources
 * @param {string} suite
 * @returns {AptSource | undefined} the distribution's own archive for a suite
 */
export function findSuite(sources, suite) {
  return sources.find((source) => source.suites.includes(suite) && source.components.includes('main'));
}

/**
 * Returns the content of a file in sources.list.d for the same archive with other suites.
 * @param {AptSource} source
 * @param {{ suites: string[], components?: string[], signedBy?: string }} change
 * @returns {string}
 */
export function formatDeb822(source, change) {
  const signedBy = change.signedBy ?? source.signedBy;
  const lines = [
    'Types: deb',
    `URIs: ${source.uri}`,
    `Suites: ${change.suites.join(' ')}`,
    `Components: ${(change.components ?? source.components).join(' ')}`,
  ];
  if (signedBy !== undefined) lines.push(`Signed-By: ${signedBy}`);
  if (source.trusted) lines.push('Trusted: yes');
  return `${lines.join('\n')}\n`;
}
