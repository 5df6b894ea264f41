import { findExecutable } from '../paths.mjs';
import { run } from '../run-command.mjs';

const ASK_TIMEOUT_MS = 60_000;

/**
 * Output of a package client; undefined if it failed or is not here.
 * @typedef {(command: string, args: string[], env?: NodeJS.ProcessEnv) => Promise<string | undefined>} Ask
 */

/** @type {Ask} */
export async function ask(command, args, env = {}) {
  const path = command.includes('/') ? command : findExecutable(command);
  if (path === undefined) return undefined;
  const options = { step: 'asking for package registries', timeoutMs: ASK_TIMEOUT_MS, allowFailure: true };
  try {
    // Not in the project, whose own settings are nobody else's.
    const { exitCode, stdout } = await run(path, args, { ...options, env, cwd: '/' });
    return exitCode === 0 ? stdout : undefined;
  } catch {
    return undefined; // it cannot be started or does not end: as if it were not here
  }
}

/**
 * @param {unknown[]} addresses
 * @returns {string[]} in order, each once
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
 * @returns {string} empty for none
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
 * @returns {Record<string, unknown>} empty for what is no JSON object
 */
export function parseObject(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}
