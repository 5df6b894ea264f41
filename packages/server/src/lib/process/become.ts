export interface Account {
  uid: number;
  gid: number;
}

/** For good: the effective, real and saved ids are those of the account, and no capability is left. */
export function become(account: Account): void {
  process.setgroups?.([]);
  process.setgid?.(account.gid);
  process.setuid?.(account.uid);
}
