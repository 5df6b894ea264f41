#!/usr/bin/env node
import { existsSync, readFileSync } from 'node:fs';

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const args = process.argv.slice(2);
/** A checkout, as the service is installed from, has the sources. The published package has only the built program. */
const SOURCES = new URL('../src/', import.meta.url);
const isCheckout = existsSync(SOURCES);

if (isCheckout && args[0] === 'admin') {
  const { admin } = await import(new URL('admin/admin.mjs', SOURCES).href);
  process.exitCode = await admin(args.slice(1));
} else {
  const program = await findProgram();
  // Open connections and an open standard input would keep the process alive.
  process.exit(program === undefined ? 1 : await (await import(program)).main(args, version));
}

/** @returns {Promise<string | undefined>} address of the module with the user's commands */
async function findProgram() {
  if (!isCheckout) return new URL('../dist/coppice.mjs', import.meta.url).href;
  const { findUserProgram } = await import(new URL('admin/user-program.mjs', SOURCES).href);
  return findUserProgram();
}
