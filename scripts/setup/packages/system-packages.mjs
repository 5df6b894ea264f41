import { assertApt, candidateIsAtLeast, ensureBackports, installPackages, updateOnce } from './apt.mjs';
import { readOperatingSystem } from '../operating-system.mjs';
import { isRoot } from '../paths.mjs';
import { finishGuardedInstallation, withoutMainCluster } from './postgres-packages.mjs';
import { inspectAll, installLine, remedyFor } from '../prerequisites.mjs';
import { say } from '../report.mjs';
import { disableServices, withoutServiceStarts } from './service-guard.mjs';
import { describeError, SetupError } from '../setup-error.mjs';

/** @typedef {import('../prerequisites.mjs').Finding} Finding */
/** @typedef {import('../prerequisites.mjs').Prerequisite} Prerequisite */

/**
 * Installs the missing entries of the table, and nothing else. Without root it only reports them, and throws SetupError
 * if one of them is indispensable.
 * @param {readonly import('../prerequisites.mjs').Scope[]} scopes
 * @returns {Promise<Map<string, Finding>>} by name
 */
export async function ensureSystemPackages(scopes) {
  if (isRoot()) await finishGuardedInstallation();
  let findings = await inspectAll(scopes);
  const missing = findings.filter((finding) => !finding.ok);
  const faulty = missing.find(({ remedy }) => remedy !== undefined);
  if (faulty?.remedy !== undefined) throw new SetupError(faulty.detail, { remedy: faulty.remedy });
  if (missing.length > 0 && !isRoot()) reportMissing(missing);
  else if (missing.length > 0) {
    await installMissing(missing);
    findings = await inspectAll(scopes);
    assertComplete(findings, await updateOnce());
  }
  return new Map(findings.map((finding) => [finding.prerequisite.name, finding]));
}

/** @param {readonly Finding[]} missing */
function reportMissing(missing) {
  const line = installLine(missing.map(({ prerequisite }) => prerequisite));
  const text = `these are missing, and only root can install them:\n  ${formatFindings(missing)}`;
  if (missing.some(({ prerequisite }) => prerequisite.dispensable !== true))
    throw new SetupError(text, { remedy: `sudo ${line}` });
  say(`${text}\n  set-up continues without them; to install them: sudo ${line}`);
}

/** @param {readonly Finding[]} missing */
async function installMissing(missing) {
  const wanted = missing.map(({ prerequisite }) => prerequisite);
  assertApt(wanted.map(({ name }) => name));
  const updateOutput = await updateOnce();
  const guarded = wanted.some(({ packages }) => packages.includes('postgresql'))
    ? () => withoutMainCluster(() => install(wanted))
    : () => install(wanted);
  await withoutServiceStarts(guarded).catch((error) => {
    throw new SetupError(
      `${describeFailure(error)}\nmissing on this machine:\n  ${formatFindings(missing)}${formatComplaints(updateOutput)}`,
      {
        remedy:
          findRemedy(error) ??
          `make the package mirror reachable and run this again, or run: ${installLine(wanted)}`,
        cause: error,
      },
    );
  });
  await disableServices(wanted.flatMap(({ services }) => services ?? []));
}

/** @param {unknown} error */
function findRemedy(error) {
  return error instanceof SetupError ? error.remedy : undefined;
}

/**
 * Describes an error without its remedy, which the caller gives.
 * @param {unknown} error
 */
function describeFailure(error) {
  return error instanceof SetupError ? error.message : describeError(error);
}

/** @param {readonly Prerequisite[]} missing */
async function install(missing) {
  /** @type {string[]} */
  const plain = [];
  /** @type {string[]} */
  const fromBackports = [];
  for (const prerequisite of missing) {
    const packages = await findNewEnough(prerequisite);
    if (packages === undefined) fromBackports.push(...prerequisite.packages);
    else plain.push(...packages);
  }
  await installPackages({ packages: plain });
  if (fromBackports.length > 0) {
    const { codename } = await readOperatingSystem();
    await installPackages({ packages: fromBackports, release: await ensureBackports(codename) });
  }
}

/**
 * @param {Prerequisite} prerequisite
 * @returns {Promise<string[] | undefined>} packages of the distribution's own release; undefined if all are too old
 */
async function findNewEnough({ packages, choosePackages, newerPackages = [], minimum }) {
  if (choosePackages !== undefined) return choosePackages();
  if (minimum === undefined) return packages;
  const old = [];
  for (const name of packages) if (!(await candidateIsAtLeast(name, minimum))) old.push(name);
  if (old.length === 0) return packages;
  for (const name of newerPackages) if (await candidateIsAtLeast(name, minimum)) return [name];
  return undefined;
}

/** @param {readonly Finding[]} findings */
function formatFindings(findings) {
  return findings
    .map(({ prerequisite: { name, purpose }, detail }) => `${name} (${purpose}): ${detail}`)
    .join('\n  ');
}

/**
 * @param {readonly Finding[]} findings
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
 * Formats the errors and warnings of apt-get update: an unreadable source is why most packages "cannot be located".
 * @param {string} updateOutput
 */
function formatComplaints(updateOutput) {
  const complaints = updateOutput.split('\n').filter((line) => /^[EW]:/.test(line));
  return complaints.length === 0 ? '' : `\napt-get update reported:\n  ${complaints.join('\n  ')}`;
}
