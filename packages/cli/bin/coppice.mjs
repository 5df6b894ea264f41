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

  doctor   lists what this machine needs for Coppice, what is there, and what to do about the rest;
           exit code 1 if something needed is missing
  audit    checks the audit log of a sandbox without the service: exit code 0 if it is as it was written, 1 if it
           is not, 2 if it could not be checked
  image    brings images to a machine without a registry: OCI layouts, or archives of them as
           "podman save --format oci-archive" and "skopeo copy … oci-archive:…" write them; as root
  backup   writes the database, as of one moment, and the master key to a directory; the service may run
  restore  puts them back where there is no database yet, also under another version of PostgreSQL; the
           service must not run
  master-key  makes a new master key and seals all stored secrets with it; the service must not run, sandboxes
           run on; asked again it finishes what was interrupted
  organization  shows organizations with what they cost, grants them credit (a negative amount takes back), and sets
           limits of their own; the service may run
`;

/**
 * By name: takes the arguments after it, gives the exit code.
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
