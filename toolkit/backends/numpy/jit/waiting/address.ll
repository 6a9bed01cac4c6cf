; Threads sleep with WaitOnAddress of Windows: workers on the word that counts wake-ups.

declare i32 @WaitOnAddress(ptr, ptr, $LONG, i32)
declare void @WakeByAddressAll(ptr)
declare i32 @SwitchToThread()

define i32 @sched_yield() #0 {
  %switched = call i32 @SwitchToThread()
  ret i32 0
}

define void @prepare(ptr %pool) #0 {
  ret void
}

define void @arrive(ptr %pool) #0 {
  ret void
}

define void @sleep_since(ptr %pool, i32 %wakes) #0 {
  %seen = alloca i32
  store i32 %wakes, ptr %seen
  %wakes.at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  ; 4 bytes, no timeout
  %slept = call i32 @WaitOnAddress(ptr %wakes.at, ptr %seen, $LONG 4, i32 -1)
  ret void
}

define void @wake(ptr %pool) #0 {
  %wakes.at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %before = atomicrmw add ptr %wakes.at, i32 1 seq_cst
  call void @WakeByAddressAll(ptr %wakes.at)
  ret void
}

define void @sleep_at(ptr %word, i32 %value) #0 {
  %seen = alloca i32
  store i32 %value, ptr %seen
  %slept = call i32 @WaitOnAddress(ptr %word, ptr %seen, $LONG 4, i32 -1)
  ret void
}

define void @wake_at(ptr %word) #0 {
  call void @WakeByAddressAll(ptr %word)
  ret void
}

attributes #0 = { nounwind }
