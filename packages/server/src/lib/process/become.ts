export interface Account {
  uid: number;
  gid: number;
}

/** Switches to the account for good: effective, real and saved ids are those of the account, with no capabilities. */
export function become(account: Account): void {
  process.setgroups?.([]);
  process.setgid?.(account.gid);
  process.setuid?.(account.uid);
}
