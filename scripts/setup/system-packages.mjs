import { assertApt, candidateIsAtLeast, ensureBackports, installPackages, updateOnce } from './apt.mjs';
import { readOperatingSystem } from './operating-system.mjs';
import { inspectAll, remedyFor } from './prerequisites.mjs';
import { disableServices, withoutServiceStarts } from './service-guard.mjs';
import { describeError, SetupError } from './setup-error.mjs';

/**
 * Installs what is missing of the table, and nothing else.
 * @param {readonly import('./prerequisites.mjs').Scope[]} scopes
 * @returns {Promise<Map<string, import('./prerequisites.mjs').Finding>>} by name, all present
 */
export async function ensureSystemPackages(scopes) {
  let findings = await inspectAll(scopes);
  const missing = findings.filter((finding) => !finding.ok).map((finding) => finding.prerequisite);
  if (missing.length > 0) {
    assertApt(missing.map((prerequisite) => prerequisite.name));
    const updateOutput = await updateOnce();
    await withoutServiceStarts(() => install(missing)).catch((error) => {
      throw new SetupError(`${describeError(error)}${formatComplaints(updateOutput)}`, { cause: error });
    });
    await disableServices(missing.flatMap((prerequisite) => prerequisite.services ?? []));
    findings = await inspectAll(scopes);
    assertComplete(findings, updateOutput);
  }
  return new Map(findings.map((finding) => [finding.prerequisite.name, finding]));
}

/** @param {readonly import('./prerequisites.mjs').Prerequisite[]} missing */
async function install(missing) {
  /** @type {string[]} */
  const plain = [];
  /** @type {string[]} */
  const newer = [];
  for (const { packages, minimum } of missing) {
    for (const name of packages) {
      const current = minimum === undefined || (await candidateIsAtLeast(name, minimum));
      (current ? plain : newer).push(name);
    }
  }
  await installPackages({ packages: plain });
  if (newer.length > 0) {
    const { codename } = await readOperatingSystem();
    await installPackages({ packages: newer, release: await ensureBackports(codename) });
  }
}

/**
 * @param {readonly import('./prerequisites.mjs').Finding[]} findings
 * @param {string} updateOutput
 */
function assertComplete(findings, updateOutput) {
  const still = findings.filter((finding) => !finding.ok);
  if (still.length === 0) return;
  const list = still
    .map(({ prerequisite, detail }) => `${prerequisite.name}: ${detail}\n    ${remedyFor(prerequisite)}`)
    .join('\n  ');
  throw new SetupError(`still missing after the installation:\n  ${list}${formatComplaints(updateOutput)}`);
}

/**
 * A package that "cannot be located" is most often one whose source could not be read.
 * @param {string} updateOutput
 */
function formatComplaints(updateOutput) {
  const complaints = updateOutput.split('\n').filter((line) => /^[EW]:/.test(line));
  return complaints.length === 0 ? '' : `\napt-get update had said:\n  ${complaints.join('\n  ')}`;
}
