/** Costs of a month so far, of an organization and its teams: the same sums as in its statement. */
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { Reach } from '../../accounts/organizations/reach.ts';
import type { Database } from '../../db/database.ts';
import type { Month } from '../months/month.ts';
import { buildStatement } from '../statement/statement.ts';
import { readMonth } from '../statement/statement-store.ts';

/** Returns a function that gives the cost of a team in cents; null: of the whole reach. */
export async function readMonthCosts(
  db: Database,
  reach: Reach,
  { month, now }: { month: Month; now: HostMoment },
): Promise<(teamId: string | null) => number> {
  const page = await readMonth(db, { reach, month, now, limit: 0, after: '' });
  const { cost_cents, teams } = buildStatement(month, page, now);
  const ofTeam = new Map(teams.map((team) => [team.team_id, team.cost_cents]));
  return (teamId) => (teamId === null ? cost_cents : (ofTeam.get(teamId) ?? 0));
}
