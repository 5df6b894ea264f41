/** Builds the statement of a month for API answers. Pure. */
import {
  costCents,
  costOf,
  formatCents,
  gbHours,
  type Statement,
  type StatementDisk,
  type StatementLine,
} from '@coppice/contract';
import type { HostMoment } from '../../../lib/host-clock.ts';
import { addConsumption, consumptionOf, NOTHING_USED, showConsumption } from '../consumption/consumption.ts';
import type { DiskSum } from '../storage/read-month.ts';
import type { Month } from '../months/month.ts';
import type { MonthLine, MonthPage, TeamSum } from './statement-store.ts';

export const CSV_HEAD = 'sandbox_id,team_id,image,vcpus,mem_mib,billed_ms,cost_cents\r\n';

export function buildStatement(month: Month, page: MonthPage, now: HostMoment): Statement {
  const { lines, disks, isSettled } = page;
  const teams = addTeamsOfDisks(page);
  return {
    month: month.name,
    from: new Date(month.from).toISOString(),
    to: new Date(month.to).toISOString(),
    as_of: new Date(now.wallMs).toISOString(),
    complete: now.wallMs >= month.to && isSettled,
    ...buildSums(teams, disks),
    teams: teams.map((team) => buildTeam(team, disks)),
    disks: disks.map(buildDiskLine),
    lines: lines.map(buildLine),
  };
}

/** No field needs quotes: none holds a comma, a quote or a line break, and none begins a formula. */
export function formatCsvLine(line: MonthLine): string {
  const { sandboxId, teamId, image, vcpus, memMiB, billedMs } = line;
  const cents = formatCents(costOf(consumptionOf(vcpus, memMiB, billedMs)));
  return `${[sandboxId, teamId, image, vcpus, memMiB, billedMs, cents].join(',')}\r\n`;
}

/** Formats a disk as a line of the CSV form: without a sandbox, and with the name of the disk as image. */
export function formatCsvDisk({ name, teamId, byteMs }: DiskSum): string {
  return `${['', teamId, `disk:${name}`, 0, 0, 0, formatCents(0n, byteMs)].join(',')}\r\n`;
}

/** Adds teams that have only disks, and no sandbox, in the month. */
function addTeamsOfDisks({ teams, disks }: Pick<MonthPage, 'teams' | 'disks'>): TeamSum[] {
  const known = new Set(teams.map(({ teamId }) => teamId));
  const others = new Set(disks.map(({ teamId }) => teamId).filter((teamId) => !known.has(teamId)));
  const added = [...others].map((teamId) => ({ teamId, sandboxes: 0, vcpuMs: 0n, memMiBMs: 0n }));
  return [...teams, ...added].toSorted((a, b) => (a.teamId < b.teamId ? -1 : 1));
}

function buildTeam(team: TeamSum, disks: readonly DiskSum[]): Statement['teams'][number] {
  const { teamId } = team;
  const own = disks.filter((disk) => disk.teamId === teamId);
  return { team_id: teamId, ...buildSums([team], own) };
}

type Sums = Omit<Statement['teams'][number], 'team_id'>;

function buildSums(teams: readonly TeamSum[], disks: readonly DiskSum[]): Sums {
  const used = teams.reduce(addConsumption, NOTHING_USED);
  const byteMs = disks.reduce((sum, disk) => sum + disk.byteMs, 0n);
  return {
    sandboxes: teams.reduce((sum, team) => sum + team.sandboxes, 0),
    ...showConsumption(used),
    cost_cents: costCents(costOf(used), byteMs),
    disk_gb_hours: gbHours(byteMs),
    disk_cost_cents: costCents(0n, byteMs),
  };
}

function buildDiskLine({ name, teamId, byteMs }: DiskSum): StatementDisk {
  return { disk: name, team_id: teamId, gb_hours: gbHours(byteMs), cost_cents: costCents(0n, byteMs) };
}

function buildLine({ sandboxId, teamId, image, vcpus, memMiB, billedMs }: MonthLine): StatementLine {
  return {
    sandbox_id: sandboxId,
    team_id: teamId,
    image,
    vcpus,
    mem_mib: memMiB,
    billed_ms: billedMs,
    cost_cents: costCents(costOf(consumptionOf(vcpus, memMiB, billedMs))),
  };
}
