import { randomBytes, randomInt } from 'node:crypto';
import { CONFIGURATION_FILE } from '../../packages/server/src/config/default-paths.mjs';
import { SetupError } from '../setup/setup-error.mjs';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SECRET_LENGTH = 40;
const INVITATION_BYTES = 32;

/** @param {string} region */
export function generateKey(region) {
  const letters = Array.from({ length: SECRET_LENGTH }, () => ALPHABET[randomInt(ALPHABET.length)]);
  return `cop_live_${region}_${letters.join('')}`;
}

export function generateInvitation() {
  return `inv_${randomBytes(INVITATION_BYTES).toString('base64url')}`;
}

/**
 * @param {{ unit: string, key?: string, invitation?: string, settings: Record<string, string> }} content  `unit`: without its suffix
 * @returns {string} the configuration file of a new installation; throws SetupError for a value that it cannot hold
 */
export function buildEnvironmentFile({ unit, key, invitation, settings }) {
  const lines = [
    '# Settings of the Coppice service, as NAME=value. Full list: docs/reference/configuration.md',
    `# After a change: systemctl restart ${unit}   (sandboxes keep running)`,
    '',
    '#COPPICE_LISTEN=127.0.0.1:8080',
    '#COPPICE_LOG_LEVEL=info',
    '#COPPICE_REGISTRY_MIRRORS=docker.io=https://mirror.example',
    ...Object.entries(settings).map(([name, value]) => `${name}=${quoteValue(name, value)}`),
  ];
  if (key !== undefined) {
    lines.push(
      '',
      '# First API key. After its first start the service has its hash in the database; this line may then be removed.',
      `COPPICE_BOOTSTRAP_KEY=${key}`,
    );
  }
  if (invitation !== undefined) {
    lines.push(
      '',
      '# Invitation for the first owner, valid for a week after the first start; this line may be removed after that start.',
      `COPPICE_BOOTSTRAP_INVITATION=${invitation}`,
    );
  }
  return `${lines.join('\n')}\n`;
}

/**
 * @param {string} name
 * @param {string} value
 */
function quoteValue(name, value) {
  if (/^[\w./:,=@%+-]*$/u.test(value)) return value;
  const quote = ['"', "'", '`'].find((mark) => !value.includes(mark));
  if (quote === undefined || /[\n\r\\]/u.test(value))
    throw new SetupError(`${name} has characters that a configuration file cannot hold`, {
      remedy: `unset it, and write it into ${CONFIGURATION_FILE} by hand`,
    });
  return `${quote}${value}${quote}`;
}
