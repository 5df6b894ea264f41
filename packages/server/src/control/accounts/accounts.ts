/** The services behind the routes below `/account`. */
import type { Database } from '../db/database.ts';
import { Access } from './organizations/access.ts';
import { Invitations } from './organizations/invitations.ts';
import { LoginSessions } from './sign-in/login-sessions.ts';
import { Members } from './organizations/members.ts';
import { Organizations } from './organizations/organizations.ts';
import { People, type SignUpMode } from './organizations/people.ts';
import { SignInLimits } from './sign-in/sign-in-limits.ts';
import { TeamKeys } from './organizations/team-keys.ts';
import { Teams } from './organizations/teams.ts';

export interface Accounts {
  people: People;
  sessions: LoginSessions;
  access: Access;
  organizations: Organizations;
  members: Members;
  invitations: Invitations;
  teams: Teams;
  keys: TeamKeys;
}

export interface AccountsOptions {
  db: Database;
  region: string;
  signUp: SignUpMode;
  now?: () => number;
}

export function buildAccounts({ db, region, signUp, now = Date.now }: AccountsOptions): Accounts {
  const organizations = new Organizations({ db, region, signUp });
  const invitations = new Invitations(db, now);
  const limits = new SignInLimits(now);
  return {
    people: new People({ db, signUp, limits, organizations, invitations }),
    sessions: new LoginSessions(db, now),
    access: new Access(db),
    organizations,
    members: new Members(db),
    invitations,
    teams: new Teams(db),
    keys: new TeamKeys(db, region),
  };
}
