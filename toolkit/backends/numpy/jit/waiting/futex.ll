; Threads sleep with the futex of Linux: workers on the word that counts wake-ups.

declare $LONG @syscall($LONG, ...)

define void @prepare(ptr %pool) #0 {
  ret void
}

; Register the Linux thread id of a starting worker.
define void @arrive(ptr %pool) #0 {
entry:
  %count.at = getelementptr %Pool, ptr %pool, i32 0, i32 17
  %index = atomicrmw add ptr %count.at, i32 1 monotonic
  %some = icmp ult i32 %index, 32
  br i1 %some, label %tell, label %end
tell:
  %thread = call $LONG ($LONG, ...) @syscall($LONG $GETTID)
  %thread.at = getelementptr %Pool, ptr %pool, i32 0, i32 18, i32 %index
  store atomic $LONG %thread, ptr %thread.at release, align $LONG_BYTES
  br label %end
end:
  ret void
}

define void @sleep_since(ptr %pool, i32 %wakes) #0 {
  %wakes.at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  ; 128: FUTEX_WAIT_PRIVATE
  %slept = call $LONG ($LONG, ...) @syscall($LONG $FUTEX, ptr %wakes.at, $LONG 128, i32 %wakes, ptr null, ptr null, $LONG 0)
  ret void
}

define void @wake(ptr %pool) #0 {
  call void @make_room(ptr %pool)
  %wakes.at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %before = atomicrmw add ptr %wakes.at, i32 1 seq_cst
  ; 129: FUTEX_WAKE_PRIVATE
  %woken = call $LONG ($LONG, ...) @syscall($LONG $FUTEX, ptr %wakes.at, $LONG 129, $LONG 2147483647, ptr null, ptr null, $LONG 0)
  ret void
}

define void @sleep_at(ptr %word, i32 %value) #0 {
  %slept = call $LONG ($LONG, ...) @syscall($LONG $FUTEX, ptr %word, $LONG 128, i32 %value, ptr null, ptr null, $LONG 0)
  ret void
}

define void @wake_at(ptr %word) #0 {
  %woken = call $LONG ($LONG, ...) @syscall($LONG $FUTEX, ptr %word, $LONG 129, $LONG 2147483647, ptr null, ptr null, $LONG 0)
  ret void
}

; Exclude the caller's current processor from the affinity of workers. In a virtual
; machine
; Linux can consider idle processors busy and wake threads on the caller's processor.
; Both
; threads then alternate on that processor, in time slices of some milliseconds.
define internal void @make_room(ptr %pool) #0 {
entry:
  %mask = alloca [128 x i8], align 8
  %here = alloca i32
  %called = call $LONG ($LONG, ...) @syscall($LONG $GETCPU, ptr %here, ptr null, ptr null)
  %processor = load i32, ptr %here
  %number = add i32 %processor, 1
  %home.at = getelementptr %Pool, ptr %pool, i32 0, i32 16
  %home = load i32, ptr %home.at
  %unknown = icmp ne $LONG %called, 0
  %same = icmp eq i32 %number, %home
  %stay = or i1 %unknown, %same
  br i1 %stay, label %end, label %ask
ask:
  ; The size of the C library's processor mask.
  store [128 x i8] zeroinitializer, ptr %mask
  %bytes = call $LONG ($LONG, ...) @syscall($LONG $GETAFFINITY, $LONG 0, $LONG 128, ptr %mask)
  %told = icmp sgt $LONG %bytes, 0
  %inside = icmp ult i32 %processor, 1024
  %fits = and i1 %told, %inside
  br i1 %fits, label %leave, label %end
leave:
  store i32 %number, ptr %home.at
  %byte = lshr i32 %processor, 3
  %bit = and i32 %processor, 7
  %bit.i8 = trunc i32 %bit to i8
  %one = shl i8 1, %bit.i8
  %others = xor i8 %one, -1
  %byte.at = getelementptr i8, ptr %mask, i32 %byte
  %allowed = load i8, ptr %byte.at
  %left = and i8 %allowed, %others
  store i8 %left, ptr %byte.at
  br label %next
next:
  %k = phi i32 [ 0, %leave ], [ %k.next, %moved ]
  %more = icmp ult i32 %k, 32
  br i1 %more, label %look, label %end
look:
  %thread.at = getelementptr %Pool, ptr %pool, i32 0, i32 18, i32 %k
  %thread = load atomic $LONG, ptr %thread.at acquire, align $LONG_BYTES
  %known = icmp ne $LONG %thread, 0
  br i1 %known, label %move, label %moved
move:
  ; The call fails, without an effect, if no other processor is allowed.
  %set = call $LONG ($LONG, ...) @syscall($LONG $SETAFFINITY, $LONG %thread, $LONG %bytes, ptr %mask)
  br label %moved
moved:
  %k.next = add i32 %k, 1
  br label %next
end:
  ret void
}

attributes #0 = { nounwind }
