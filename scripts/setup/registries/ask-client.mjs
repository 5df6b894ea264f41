import { findExecutable } from '../paths.mjs';
import { run } from '../run-command.mjs';

const ASK_TIMEOUT_MS = 60_000;

/**
 * Runs a package client and returns its standard output; undefined if it fails or is not installed.
 * @typedef {(command: string, args: string[], env?: NodeJS.ProcessEnv) => Promise<string | undefined>} Ask
 */

/** @type {Ask} */
export async function ask(command, args, env = {}) {
  const path = command.includes('/') ? command : findExecutable(command);
  if (path === undefined) return undefined;
  const options = { step: 'asking for package registries', timeoutMs: ASK_TIMEOUT_MS, allowFailure: true };
  try {
    // Not in the checkout: its settings must not count.
    const { exitCode, stdout } = await run(path, args, { ...options, env, cwd: '/' });
    return exitCode === 0 ? stdout : undefined;
  } catch {
    return undefined; // it cannot be started or exceeds its time limit: as if it were not installed
  }
}

/**
 * @param {unknown[]} addresses
 * @returns {string[]} hosts of the addresses, in order, each once
 */
export function listHosts(addresses) {
  const hosts = addresses.flatMap((address) => {
    if (typeof address !== 'string' || address === '') return [];
    const host = findHost(address.trim().replace(/^(?:sparse|registry|git)\+/u, ''));
    return host === '' ? [] : [host.replace(/^\[|\]$/gu, '')];
  });
  return [...new Set(hosts)];
}

/**
 * @param {string} address
 * @returns {string} empty if the address has no host
 */
function findHost(address) {
  try {
    return new URL(address).hostname;
  } catch {
    return '';
  }
}

/**
 * @param {string} text
 * @returns {Record<string, unknown>} empty if the text is not a JSON object
 */
export function parseObject(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}
