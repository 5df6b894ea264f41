#!/usr/bin/env node
import { doctor } from '../src/doctor.mjs';
import { TYPESCRIPT_COMMANDS } from '../src/typescript-commands.mjs';

const USAGE = `usage: coppice doctor [--json]
       coppice audit verify <file> [--secret-file <file>] [--head <seq>:<hmac> | --head <file>] [--prefix]
       coppice image import <directory or .tar> --as local/<name>:<tag> [--name <name in the layout>]
       coppice image list
       coppice image remove local/<name>:<tag>
       coppice backup <new directory>
       coppice restore <directory>
       coppice master-key rotate
       coppice organization list [--json]
       coppice organization grant <organization> <USD> [--note <text>]
       coppice organization limit <organization> --<limit> <number | none | default> …

  doctor   checks what Coppice needs on this machine, and says how to fix what is missing; exit code 1 if a
           required part is missing
  audit    verifies the audit log of a sandbox without the service: exit code 0 if the log is unchanged, 1 if it
           is not, 2 if it could not be checked
  image    imports images on a machine without a registry: OCI layouts, or archives of them as
           "podman save --format oci-archive" and "skopeo copy … oci-archive:…" write them; requires root
  backup   writes a consistent copy of the database, and the master key, to a directory; the service may run
  restore  restores a backup where there is no database yet, also under another version of PostgreSQL; the
           service must not run
  master-key  makes a new master key and seals all stored secrets with it; the service must not run, sandboxes
           keep running; if it was interrupted, run it again to finish
  organization  lists organizations with their cost, grants them credit (a negative amount withdraws credit), and
           sets limits for one organization; the service may run
`;

/**
 * Commands by name. A command takes the arguments after its name and returns the exit code.
 * @type {Map<string, (args: string[]) => Promise<number>>}
 */
const COMMANDS = new Map([['doctor', doctor], ...TYPESCRIPT_COMMANDS]);

const [name, ...args] = process.argv.slice(2);
const command = COMMANDS.get(name ?? '');
if (command !== undefined) process.exitCode = await command(args);
else if (name === undefined || name === 'help' || name === '--help' || name === '-h')
  process.stdout.write(USAGE);
else {
  process.stderr.write(`coppice: unknown command "${name}"\n\n${USAGE}`);
  process.exitCode = 2;
}
