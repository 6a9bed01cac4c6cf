; Workers sleep by Linux's futex, on the word that counts how often they were woken.

declare $LONG @syscall($LONG, ...)

define void @prepare(ptr %pool) #0 {
  ret void
}

define void @sleep_since(ptr %pool, i32 %wakes) #0 {
  %wakes.at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  ; 128: FUTEX_WAIT_PRIVATE
  %slept = call $LONG ($LONG, ...) @syscall($LONG $FUTEX, ptr %wakes.at, $LONG 128, i32 %wakes, ptr null, ptr null, $LONG 0)
  ret void
}

define void @wake(ptr %pool) #0 {
  %wakes.at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %before = atomicrmw add ptr %wakes.at, i32 1 seq_cst
  ; 129: FUTEX_WAKE_PRIVATE
  %woken = call $LONG ($LONG, ...) @syscall($LONG $FUTEX, ptr %wakes.at, $LONG 129, $LONG 2147483647, ptr null, ptr null, $LONG 0)
  ret void
}

attributes #0 = { nounwind }
