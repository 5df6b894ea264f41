/** Builds the statement of a month for API answers. Pure. */
import { costCents, costOf, formatCents, type Statement, type StatementLine } from '@coppice/contract';
import type { HostMoment } from '../../../lib/host-clock.ts';
import { addConsumption, consumptionOf, NOTHING_USED, showConsumption } from '../consumption/consumption.ts';
import type { Month } from './month.ts';
import type { MonthLine, MonthPage, TeamSum } from './statement-store.ts';

export const CSV_HEAD = 'sandbox_id,team_id,image,vcpus,mem_mib,billed_ms,cost_cents\r\n';

export function buildStatement(month: Month, page: MonthPage, now: HostMoment): Statement {
  const { lines, teams, isSettled } = page;
  const used = teams.reduce(addConsumption, NOTHING_USED);
  return {
    month: month.name,
    from: new Date(month.from).toISOString(),
    to: new Date(month.to).toISOString(),
    as_of: new Date(now.wallMs).toISOString(),
    complete: now.wallMs >= month.to && isSettled,
    sandboxes: teams.reduce((sum, team) => sum + team.sandboxes, 0),
    ...showConsumption(used),
    teams: teams.map(buildTeam),
    lines: lines.map(buildLine),
  };
}

/** No field needs quotes: none holds a comma, a quote or a line break, and none begins a formula. */
export function formatCsvLine(line: MonthLine): string {
  const { sandboxId, teamId, image, vcpus, memMiB, billedMs } = line;
  const cents = formatCents(costOf(consumptionOf(vcpus, memMiB, billedMs)));
  return `${[sandboxId, teamId, image, vcpus, memMiB, billedMs, cents].join(',')}\r\n`;
}

function buildTeam(team: TeamSum): Statement['teams'][number] {
  return { team_id: team.teamId, sandboxes: team.sandboxes, ...showConsumption(team) };
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
